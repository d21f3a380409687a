package dev.remora.triple;

import java.util.function.Consumer;
import org.apache.dubbo.common.stream.StreamObserver;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.rpc.RpcContext;

/** Offers Talk by Triple on a port of 127.0.0.1 until it is ended: <pre>Provider PORT</pre> */
public final class Provider implements Talk {
    /** 127.0.0.1 as one number: Dubbo does not bind to what begins with "127.". */
    static final String LOOPBACK = "2130706433";

    private Provider() {}

    public static void main(String[] args) throws InterruptedException {
        System.setProperty("DUBBO_IP_TO_BIND", LOOPBACK);
        System.setProperty("dubbo.application.register-mode", "interface");
        ApplicationConfig application = new ApplicationConfig("triple-provider");
        application.setQosEnable(false);
        ServiceConfig<Talk> service = new ServiceConfig<>();
        service.setApplication(application);
        service.setRegistry(new RegistryConfig("N/A"));
        service.setProtocol(new ProtocolConfig("tri", Integer.parseInt(args[0])));
        service.setInterface(Talk.class);
        service.setRef(new Provider());
        service.export();
        Thread.currentThread().join();
    }

    @Override
    public String echo(String text) {
        return text;
    }

    @Override
    public String attachment(String name) {
        return RpcContext.getServerAttachment().getAttachment(name);
    }

    @Override
    public String fail(String why) {
        throw new IllegalStateException(why);
    }

    @Override
    public String sleep(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return "slept";
    }

    @Override
    public void count(int n, StreamObserver<String> out) {
        for (int i = 0; i < n; i++) {
            out.onNext(Integer.toString(i));
        }
        out.onCompleted();
    }

    @Override
    public StreamObserver<String> repeat(StreamObserver<String> out) {
        return observer(out, out::onNext, out::onCompleted);
    }

    @Override
    public StreamObserver<String> measure(StreamObserver<String> out) {
        int[] sum = new int[1];
        return observer(out, text -> sum[0] += text.length(), () -> {
            out.onNext(Integer.toString(sum[0]));
            out.onCompleted();
        });
    }

    private static StreamObserver<String> observer(StreamObserver<String> out, Consumer<String> next, Runnable end) {
        return new StreamObserver<>() {
            @Override
            public void onNext(String text) {
                next.accept(text);
            }

            @Override
            public void onError(Throwable why) {
                out.onError(why);
            }

            @Override
            public void onCompleted() {
                end.run();
            }
        };
    }
}
