package dev.remora.lab;

import java.util.List;
import java.util.Map;

/** A service whose methods differ in what they take and how they end. */
public interface Sampler {
    int hash(String s);

    String echo(String s);

    int echo(int n);

    long echo(long n);

    double echo(double d);

    boolean echo(boolean b);

    byte[] echo(byte[] b);

    List<Object> echo(List<Object> list);

    Map<String, Object> echo(Map<String, Object> map);

    User echo(User user);

    /** One of Shapes, by its name. */
    Object shape(String name);

    Color echo(Color color);

    /** What the second one of several arguments is. */
    String second(int a, String b, List<Object> c);

    String nothing();

    /** The value of the call's attachment of this name. */
    String attachment(String name);

    String refuse(String reason) throws RefusedException;

    String crash(String message);

    String slow(int ms, String s);

    /** Called one-way by the consumer. */
    void note(String s);

    /** How often note was called with s. */
    int noted(String s);

    /** Which provider this is. */
    String name();
}
