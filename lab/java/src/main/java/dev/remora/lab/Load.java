package dev.remora.lab;

import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;
import org.apache.dubbo.rpc.RpcException;

/** Calls of hash in numbers, and with silence between them. */
final class Load {
    private Load() {}

    private static volatile boolean done;

    /** Calls until a line arrives. Prints what became of the calls: right, wrong, and the failures by their code. */
    static void run(Sampler s, int threads) throws InterruptedException, IOException {
        Map<String, Integer> counts = new TreeMap<>(Map.of("right", 0, "wrong", 0));
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                while (!done) {
                    String outcome = call(s);
                    synchronized (counts) {
                        counts.merge(outcome, 1, Integer::sum);
                    }
                }
            });
            all[i].start();
        }
        System.in.read();
        done = true;
        for (Thread t : all) {
            t.join();
        }
        System.out.println(counts);
    }

    private static String call(Sampler s) {
        String text = Long.toString(ThreadLocalRandom.current().nextLong(), 36);
        try {
            return s.hash(text) == text.hashCode() ? "right" : "wrong";
        } catch (RpcException e) {
            System.err.println(e.getMessage());
            return "failed-" + e.getCode();
        }
    }

    /** One call, and another one when a line arrives. */
    static void idle(Sampler s) throws IOException {
        System.out.println(call(s) + " before");
        System.in.read();
        System.out.println(call(s) + " after");
    }

    /** Waits for what must become true; false when it does not within a minute. */
    static boolean await(BooleanSupplier condition) throws InterruptedException {
        for (int i = 0; i < 6000; i++) {
            if (condition.getAsBoolean()) {
                return true;
            }
            Thread.sleep(10);
        }
        return false;
    }
}
