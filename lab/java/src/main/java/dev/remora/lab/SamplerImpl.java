package dev.remora.lab;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.dubbo.rpc.RpcContext;

final class SamplerImpl implements Sampler {
    private final Map<String, Integer> notes = new ConcurrentHashMap<>();
    private final String name;

    SamplerImpl(String name) {
        this.name = name;
    }

    @Override
    public int hash(String s) {
        return s.hashCode();
    }

    @Override
    public String echo(String s) {
        return s;
    }

    @Override
    public int echo(int n) {
        return n;
    }

    @Override
    public long echo(long n) {
        return n;
    }

    @Override
    public double echo(double d) {
        return d;
    }

    @Override
    public boolean echo(boolean b) {
        return b;
    }

    @Override
    public byte[] echo(byte[] b) {
        return b;
    }

    @Override
    public List<Object> echo(List<Object> list) {
        return list;
    }

    @Override
    public Map<String, Object> echo(Map<String, Object> map) {
        return map;
    }

    @Override
    public User echo(User user) {
        return user;
    }

    @Override
    public Object shape(String name) {
        return Shapes.all().get(name);
    }

    @Override
    public Color echo(Color color) {
        return color;
    }

    @Override
    public String second(int a, String b, List<Object> c) {
        return b;
    }

    @Override
    public String nothing() {
        return null;
    }

    @Override
    public String attachment(String name) {
        return RpcContext.getContext().getAttachment(name);
    }

    @Override
    public String refuse(String reason) throws RefusedException {
        throw new RefusedException(reason);
    }

    @Override
    public String crash(String message) {
        throw new IllegalStateException(message);
    }

    @Override
    public String slow(int ms, String s) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return s;
    }

    @Override
    public void note(String s) {
        notes.merge(s, 1, Integer::sum);
    }

    @Override
    public int noted(String s) {
        return notes.getOrDefault(s, 0);
    }

    @Override
    public String name() {
        return name;
    }
}
