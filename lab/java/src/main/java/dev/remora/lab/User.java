package dev.remora.lab;

import java.io.Serializable;
import java.util.List;
import java.util.Objects;

/** A value with fields, one of them of its own type. */
public class User implements Serializable {
    private String name;
    private int age;
    private List<String> tags;
    private User friend;

    public User() {}

    public User(String name, int age, List<String> tags, User friend) {
        this.name = name;
        this.age = age;
        this.tags = tags;
        this.friend = friend;
    }

    public String getName() {
        return name;
    }

    public void setName(String name) {
        this.name = name;
    }

    public int getAge() {
        return age;
    }

    public void setAge(int age) {
        this.age = age;
    }

    public List<String> getTags() {
        return tags;
    }

    public void setTags(List<String> tags) {
        this.tags = tags;
    }

    public User getFriend() {
        return friend;
    }

    public void setFriend(User friend) {
        this.friend = friend;
    }

    @Override
    public boolean equals(Object o) {
        return o instanceof User u && Objects.equals(name, u.name) && age == u.age
                && Objects.equals(tags, u.tags) && Objects.equals(friend, u.friend);
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, age, tags, friend);
    }

    @Override
    public String toString() {
        return "User(" + name + ", " + age + ", " + tags + ", " + friend + ")";
    }
}
