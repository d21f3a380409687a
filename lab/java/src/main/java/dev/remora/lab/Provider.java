package dev.remora.lab;

import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;

/**
 * Offers Sampler twice, as it is and as group "blue" in version "2.0.0", until
 * it is ended:
 *
 * <pre>Provider PORT [THREADS [HEARTBEAT_MS]]</pre>
 *
 * THREADS are a fixed pool without a queue. Past it Dubbo answers status 100. The system property registry is the URL
 * of a registry, in which the provider then registers the address in the property host.
 */
public final class Provider {
    private static final String REGISTRY = System.getProperty("registry", "N/A");

    private Provider() {}

    public static void main(String[] args) throws InterruptedException {
        String host = System.getProperty("host", Loopback.HOST);
        System.setProperty("DUBBO_IP_TO_BIND", host);
        if (REGISTRY.equals("N/A")) {
            // Else Dubbo 3 serves its own metadata on a second port.
            System.setProperty("dubbo.application.register-mode", "interface");
        } else {
            System.setProperty("DUBBO_IP_TO_REGISTRY", host);
        }
        ProtocolConfig protocol = new ProtocolConfig("dubbo", Integer.parseInt(args[0]));
        protocol.setThreadpool("fixed");
        protocol.setThreads(args.length > 1 ? Integer.parseInt(args[1]) : 200);
        protocol.setQueues(0);
        protocol.setPayload(16 << 20);
        if (args.length > 2) {
            protocol.setHeartbeat(Integer.parseInt(args[2]));
        }
        ApplicationConfig application = new ApplicationConfig("lab-provider");
        application.setQosEnable(false);
        export(application, protocol, "plain", null, null);
        export(application, protocol, "blue", "blue", "2.0.0");
        System.out.println("ready");
        Thread.currentThread().join();
    }

    private static void export(
            ApplicationConfig application, ProtocolConfig protocol, String name, String group, String version) {
        ServiceConfig<Sampler> service = new ServiceConfig<>();
        service.setApplication(application);
        service.setRegistry(new RegistryConfig(REGISTRY));
        service.setProtocol(protocol);
        service.setInterface(Sampler.class);
        service.setRef(new SamplerImpl(name));
        service.setGroup(group);
        service.setVersion(version);
        service.export();
    }
}
