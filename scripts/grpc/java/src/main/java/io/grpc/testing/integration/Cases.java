package io.grpc.testing.integration; // its parts are not public

import io.grpc.LoadBalancerRegistry;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * Runs cases of gRPC's interop client one after the other in one process:
 *
 * <pre>Cases PORT CASE...    a line "ok CASE" or "FAIL CASE WHY" for each</pre>
 */
public final class Cases {
    private Cases() {}

    public static void main(String[] args) throws Exception {
        LoadBalancerRegistry.getDefaultRegistry().register(new CustomBackendMetricsLoadBalancerProvider());
        for (String name : Arrays.copyOfRange(args, 1, args.length)) {
            TestServiceClient client = new TestServiceClient();
            client.parseArgs(new String[] {
                "--server_host=127.0.0.1", "--server_port=" + args[0], "--use_tls=false", "--test_case=" + name,
                "--service_config_json={\"loadBalancingConfig\": [{\"" + policy(name) + "\": {}}]}"
            });
            client.setUp();
            try {
                call(client, "run");
                System.out.println("ok " + name);
            } catch (InvocationTargetException e) {
                Throwable why = e.getCause();
                System.out.println("FAIL " + name + " " + String.valueOf(why).replaceAll("\\s+", " "));
                why.printStackTrace();
            } finally {
                call(client, "tearDown");
            }
        }
        System.exit(0); // gRPC's threads would keep it alive
    }

    private static String policy(String name) {
        return name.startsWith("orca") ? "test_backend_metrics_load_balancer" : "pick_first";
    }

    private static void call(TestServiceClient client, String name) throws Exception {
        Method method = TestServiceClient.class.getDeclaredMethod(name);
        method.setAccessible(true);
        method.invoke(client);
    }
}
