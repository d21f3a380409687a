import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Collections;
import java.util.HexFormat;
import org.apache.catalina.startup.Tomcat;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Echoes what a Java server saw of a request: java Echo jetty|tomcat PORT. */
public class Echo extends HttpServlet {
    private static String hex(String text) {
        return hex(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
        String echo = "early";
        if (!request.getRequestURI().startsWith("/early")) {
            String query = request.getQueryString();
            String target = request.getRequestURI() + (query == null ? "" : "?" + query);
            StringBuilder text = new StringBuilder();
            text.append("method=").append(hex(request.getMethod())).append(" target=").append(hex(target));
            text.append(" body=").append(hex(request.getInputStream().readAllBytes()));
            for (String name : Collections.list(request.getHeaderNames())) {
                for (String value : Collections.list(request.getHeaders(name))) {
                    text.append(" header=").append(hex(name + ": " + value));
                }
            }
            echo = text.toString();
        }
        if (request.getMethod().equals("HEAD")) {
            response.setHeader("X-Echo", echo);
        }
        byte[] bytes = echo.getBytes(StandardCharsets.ISO_8859_1);
        response.setContentType("text/plain");
        response.setContentLength(bytes.length);
        if (!request.getMethod().equals("HEAD")) {
            response.getOutputStream().write(bytes);
        }
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("jetty")) {
            Server server = new Server();
            ServerConnector connector = new ServerConnector(server);
            connector.setHost("127.0.0.1");
            connector.setPort(port);
            server.addConnector(connector);
            ServletContextHandler context = new ServletContextHandler("/");
            context.addServlet(new ServletHolder(new Echo()), "/*");
            server.setHandler(context);
            server.start();
            server.join();
            return;
        }
        File base = Files.createTempDirectory(new File(".").toPath(), "tomcat").toFile();
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(base.getPath());
        tomcat.setPort(port);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        var context = tomcat.addContext("", base.getAbsolutePath());
        Tomcat.addServlet(context, "echo", new Echo());
        context.addServletMappingDecoded("/*", "echo");
        tomcat.start();
        tomcat.getServer().await();
    }
}
