package dev.remora.lab;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.dubbo.rpc.RpcContext;
import org.apache.dubbo.rpc.RpcException;

/** Each kind of call once, with the answer that is due. */
final class Checks {
    private Checks() {}

    static void run(Sampler plain, Sampler blue) {
        values(plain);
        if (!"fastjson".equals(System.getProperty("serialization"))) { // it does not bring exceptions back
            exceptions(plain);
        }
        others(plain);
        same("group and version", "blue", blue::name);
        same("no group and no version", "plain", plain::name);
        check("200 calls at once, the later ones faster", () -> concurrent(plain));
    }

    private static void values(Sampler s) {
        String text = "naïve ☕ 😀 \"quoted\" \\ &=+% \n";
        for (String each : new String[] {"", "abc", text, "x".repeat(1 << 20), "é".repeat(40_000), "😀".repeat(40_000)}) {
            String name = each.length() > 40 ? each.length() + " of " + each.codePointAt(0) : each.trim();
            same("hash of " + name, each.hashCode(), () -> s.hash(each));
            same("echo of " + name, each, () -> s.echo(each));
        }
        same("null", null, () -> s.echo((String) null));
        same("no result", null, s::nothing);
        for (int n : new int[] {0, -1, 47, 48, 4096, 1 << 20, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
            same("int " + n, n, () -> s.echo(n));
        }
        for (long n : new long[] {0, -9, 4096, 1L << 40, Long.MIN_VALUE, Long.MAX_VALUE}) {
            same("long " + n, n, () -> s.echo(n));
        }
        for (double d : new double[] {0, 1, -0.5, 12.25, 1e300, Math.PI}) {
            same("double " + d, d, () -> s.echo(d));
        }
        same("true", true, () -> s.echo(true));
        same("false", false, () -> s.echo(false));
        byte[] bytes = new byte[100_000];
        new Random(1).nextBytes(bytes);
        check("100,000 bytes", () -> Arrays.equals(bytes, s.echo(bytes)));
        same("empty list", List.of(), () -> s.echo(new ArrayList<>()));
        List<Object> list = new ArrayList<>(Arrays.asList(1, "two", null, new ArrayList<>(List.of("three")), true));
        same("list", list, () -> s.echo(list));
        Map<String, Object> map = new TreeMap<>(Map.of("a", 1, "b", new ArrayList<>(List.of("c"))));
        same("map", map, () -> new TreeMap<>(s.echo(map)));
        User user = new User("Ann", 42, new ArrayList<>(List.of("x", "y")), new User("Bob", -1, null, null));
        same("object", user, () -> s.echo(user));
        same("three arguments", "b", () -> s.second(1, "b", new ArrayList<>()));
    }

    private static void exceptions(Sampler s) {
        check("declared exception", () -> {
            try {
                s.refuse("too früh");
                return false;
            } catch (RefusedException e) {
                return e.getMessage().equals("too früh");
            }
        });
        check("exception of Java's own", () -> {
            try {
                s.crash("böse");
                return false;
            } catch (IllegalStateException e) {
                return e.getMessage().equals("böse");
            }
        });
    }

    private static void others(Sampler s) {
        same("attachment", "värde", () -> {
            RpcContext.getContext().setAttachment("color", "värde");
            return s.attachment("color");
        });
        same("slow", "late", () -> s.slow(300, "late"));
        check("one-way", () -> {
            String note = UUID.randomUUID().toString();
            s.note(note);
            return Load.await(() -> s.noted(note) == 1);
        });
    }

    /** Answers come in another order than the calls. */
    private static boolean concurrent(Sampler s) {
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        ExecutorService pool = Executors.newFixedThreadPool(200);
        for (int i = 0; i < 200; i++) {
            String want = "call " + i;
            int ms = 200 - i;
            all.add(CompletableFuture.supplyAsync(() -> want.equals(s.slow(ms, want)), pool));
        }
        boolean good = all.stream().allMatch(CompletableFuture::join);
        pool.shutdown();
        return good;
    }

    private static void same(String name, Object want, Callable<Object> call) {
        check(name, () -> {
            Object got = call.call();
            if (!Objects.equals(want, got)) {
                throw new AssertionError("got " + brief(got) + ", want " + brief(want));
            }
            return true;
        });
    }

    private static void check(String name, Callable<Boolean> good) {
        String verdict = "FAIL " + name;
        try {
            if (good.call()) {
                verdict = "ok " + name;
            }
        } catch (RpcException e) {
            verdict += ": RpcException " + e.getCode() + ": " + brief(e.getMessage());
        } catch (Throwable e) {
            verdict += ": " + brief(e);
        }
        System.out.println(verdict.replace('\n', ' '));
    }

    private static String brief(Object o) {
        String s = String.valueOf(o);
        return s.length() > 300 ? s.substring(0, 300) + "..." : s;
    }
}
