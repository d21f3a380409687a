package dev.remora.lab;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Values that JSON has no form for: keys that are no strings, and what contains itself. */
final class Shapes {
    private Shapes() {}

    static Map<String, Object> all() {
        User ann = new User("Ann", 42, null, null);
        User self = new User("Self", 1, null, null);
        self.setFriend(self);
        User left = new User("Left", 1, null, null);
        User right = new User("Right", 2, null, left);
        left.setFriend(right);
        List<Object> list = new ArrayList<>();
        list.add("first");
        list.add(list);
        Map<Object, Object> map = new HashMap<>();
        map.put("self", map);
        Map<Object, Object> deep = new HashMap<>();
        deep.put("in", new ArrayList<>(List.of(self, "last")));

        Map<String, Object> all = new LinkedHashMap<>();
        all.put("enum key", map(Color.RED, 1));
        all.put("enum key with a class of its own", map(Color.GREEN, 1));
        all.put("object key", map(ann, 1));
        all.put("number key", map(7, "seven"));
        all.put("long key", map(1L << 40, "long"));
        all.put("boolean key", map(true, "yes"));
        all.put("list key", map(new ArrayList<>(List.of("a", 1)), 1));
        all.put("map key", map(map("a", 1), 1));
        all.put("null key", map(null, 1));
        all.put("key with quotes", map("\"é\\\n", 1));
        all.put("map in a map, with enum keys", map(Color.RED, map(Color.GREEN, map(ann, null))));
        all.put("null in an object", ann);
        all.put("null in a map", map("none", null));
        all.put("null in a list", Collections.singletonList(null));
        all.put("one object twice", new ArrayList<>(List.of(ann, ann)));
        all.put("object in itself", self);
        all.put("object in its friend", left);
        all.put("list in itself", list);
        all.put("map in itself", map);
        all.put("object in itself, in a map and a list", deep);
        return all;
    }

    /** A map of one entry, of a class that every serialization knows. */
    private static Map<Object, Object> map(Object key, Object value) {
        Map<Object, Object> map = new HashMap<>();
        map.put(key, value);
        return map;
    }
}
