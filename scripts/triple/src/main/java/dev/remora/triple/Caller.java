package dev.remora.triple;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.dubbo.common.stream.StreamObserver;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.rpc.RpcContext;
import org.apache.dubbo.rpc.RpcException;

/** Calls Talk by Triple on a port of 127.0.0.1; a line "ok CASE" or "FAIL CASE WHY" for each: <pre>Caller PORT</pre> */
public final class Caller {
    private Caller() {}

    public static void main(String[] args) {
        ApplicationConfig application = new ApplicationConfig("triple-consumer");
        application.setQosEnable(false);
        ReferenceConfig<Talk> reference = new ReferenceConfig<>();
        reference.setApplication(application);
        reference.setRegistry(new RegistryConfig("N/A"));
        reference.setInterface(Talk.class);
        reference.setUrl("tri://" + Provider.LOOPBACK + ":" + args[0]);
        reference.setTimeout(30_000);
        reference.setRetries(0);
        reference.setCheck(false);
        Talk talk = reference.get();
        String large = "x".repeat(6 << 20);
        same("echo", "héllo ☕", () -> talk.echo("héllo ☕"));
        same("echo_nothing", "", () -> talk.echo(""));
        same("echo_6MiB", large, () -> talk.echo(large)); // past limits.message
        same("attachment", "red", () -> {
            RpcContext.getClientAttachment().setAttachment("color", "red");
            return talk.attachment("color");
        });
        same("exception", "too bad", () -> failure(() -> talk.fail("too bad")));
        same("deadline", "timeout", () -> {
            RpcContext.getClientAttachment().setObjectAttachment("timeout", 200);
            return failure(() -> talk.sleep(5_000));
        });
        same("server_stream", "5000 in order", () -> {
            Inbox in = new Inbox();
            talk.count(5_000, in);
            for (int i = 0; i < 5_000; i++) {
                in.expect(Integer.toString(i));
            }
            in.expect(Inbox.END);
            return "5000 in order";
        });
        // They fit one frame: Dubbo 3.3 itself loses its place in messages that two frames share.
        same("client_stream", "6000", () -> {
            Inbox in = new Inbox();
            StreamObserver<String> out = talk.measure(in);
            for (int i = 0; i < 20; i++) {
                out.onNext("y".repeat(300));
            }
            out.onCompleted();
            String sum = in.next();
            in.expect(Inbox.END);
            return sum;
        });
        same("ping_pong", "200 in turn", () -> {
            Inbox in = new Inbox();
            StreamObserver<String> out = talk.repeat(in);
            for (int i = 0; i < 200; i++) {
                out.onNext("turn " + i);
                in.expect("turn " + i);
            }
            out.onCompleted();
            in.expect(Inbox.END);
            return "200 in turn";
        });
        System.exit(0); // Dubbo's threads would keep it alive
    }

    private static void same(String name, String want, Callable<String> call) {
        try {
            String got = call.call();
            System.out.println(want.equals(got) ? "ok " + name : "FAIL " + name + " " + cut(got) + ", want " + cut(want));
        } catch (Throwable e) {
            System.out.println("FAIL " + name + " " + cut(e.toString().replaceAll("\\s+", " ")));
            e.printStackTrace();
        }
    }

    private static String failure(Callable<String> call) throws Exception {
        try {
            return "no failure: " + call.call();
        } catch (RpcException e) {
            return e.isTimeout() || e.getMessage().contains("DEADLINE_EXCEEDED") ? "timeout" : e.getMessage();
        } catch (RuntimeException e) {
            return e.getMessage();
        }
    }

    private static String cut(String text) {
        return text == null || text.length() < 200 ? text : text.substring(0, 200);
    }

    /** The responses of a stream, in order. */
    private static final class Inbox implements StreamObserver<String> {
        static final String END = "the end";
        private final BlockingQueue<String> queue = new LinkedBlockingQueue<>();

        String next() throws InterruptedException {
            return queue.poll(60, TimeUnit.SECONDS);
        }

        void expect(String want) throws InterruptedException {
            String got = next();
            if (!want.equals(got)) {
                throw new IllegalStateException("got " + cut(got) + ", want " + want);
            }
        }

        @Override
        public void onNext(String text) {
            queue.add(text);
        }

        @Override
        public void onError(Throwable why) {
            queue.add("error: " + why);
        }

        @Override
        public void onCompleted() {
            queue.add(END);
        }
    }
}
