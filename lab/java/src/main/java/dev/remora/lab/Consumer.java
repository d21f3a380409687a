package dev.remora.lab;

import java.util.List;
import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.MethodConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.rpc.service.GenericService;

/**
 * Calls a Sampler on a port of 127.0.0.1, directly or through what listens there:
 *
 * <pre>
 * Consumer PORT checks   each kind of call once; a line "ok" or "FAIL" for each
 * Consumer PORT shapes   what generic invocation gives for each of Shapes; a line "shape NAME, tab, JSON" for each
 * Consumer PORT idle     one call, heartbeats alone until a line is read, one call
 * Consumer PORT load N   N threads, each with one call after the other until a line is read
 * </pre>
 *
 * The system property serialization is hessian2 or fastjson, the default is Dubbo's. The system property registry is
 * the URL of a registry, which then has the providers instead of the port.
 */
public final class Consumer {
    private Consumer() {}

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        switch (args[1]) {
            case "checks" -> Checks.run(refer(port, null, null), refer(port, "blue", "2.0.0"));
            case "shapes" -> Generic.run(generic(port));
            case "idle" -> Load.idle(refer(port, null, null));
            case "load" -> Load.run(refer(port, null, null), Integer.parseInt(args[2]));
            default -> throw new IllegalArgumentException(args[1]);
        }
        System.exit(0); // Dubbo's threads would keep it alive
    }

    private static Sampler refer(int port, String group, String version) {
        MethodConfig note = new MethodConfig();
        note.setName("note");
        note.setReturn(false);
        ReferenceConfig<Sampler> reference = reference(port);
        reference.setInterface(Sampler.class);
        reference.setGroup(group);
        reference.setVersion(version);
        reference.setMethods(List.of(note));
        return reference.get();
    }

    private static GenericService generic(int port) {
        ReferenceConfig<GenericService> reference = reference(port);
        reference.setInterface(Sampler.class.getName());
        reference.setGeneric("true");
        return reference.get();
    }

    private static <T> ReferenceConfig<T> reference(int port) {
        ApplicationConfig application = new ApplicationConfig("lab-consumer");
        application.setQosEnable(false);
        ReferenceConfig<T> reference = new ReferenceConfig<>();
        reference.setApplication(application);
        String registry = System.getProperty("registry", "N/A");
        reference.setRegistry(new RegistryConfig(registry));
        if (registry.equals("N/A")) {
            reference.setUrl("dubbo://" + Loopback.HOST + ":" + port + parameters());
        }
        reference.setTimeout(Integer.getInteger("timeout", 30_000));
        reference.setRetries(0);
        reference.setCheck(false);
        reference.setParameters(Map.of("heartbeat", "5000")); // a connection without an answer for 15 s is given up
        return reference;
    }

    private static String parameters() {
        String serialization = System.getProperty("serialization");
        return serialization == null ? "" : "?serialization=" + serialization;
    }
}
