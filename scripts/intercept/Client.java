import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.regex.Pattern;

/** A program that knows nothing of Remora: {@code java Client.java SUFFIX CALLS}; see client.py. */
public class Client {
  private static final int SIZE = 3 << 20;
  private static final Pattern OURS =
      Pattern.compile("^(cdn-loop|x-request-id|x-forwarded-for):", Pattern.MULTILINE | Pattern.CASE_INSENSITIVE);
  private static String suffix;

  private interface Check {
    void run() throws Exception;
  }

  public static void main(String[] args) {
    suffix = args[0];
    int calls = Integer.parseInt(args[1]);
    HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    check(
        "HTTP to a service",
        () -> {
          for (int i = 0; i < calls; i++) {
            HttpResponse<String> answer = get(client, "compute", 8080);
            expect(answer.statusCode() + " " + answer.body().substring(0, 8), "200 replica ");
          }
        });
    check(
        "HTTP to an unknown host",
        () -> {
          // By default it offers to go on with HTTP/2.
          for (HttpClient each : new HttpClient[] {client, HttpClient.newHttpClient()}) {
            HttpResponse<String> answer = get(each, "other", 8081);
            expect(answer.statusCode() + " " + OURS.matcher(answer.body()).find(), "200 false");
          }
        });
    check(
        "Redis",
        () -> {
          try (Socket s = connect("store", 6379)) {
            say(s, "PING\r\n", "+PONG\r\n");
            say(s, "SET java" + suffix + " 1\r\n", "+OK\r\n");
            say(s, "INCR java" + suffix + "\r\n", ":2\r\n");
          }
        });
    check(
        "half-close",
        () -> {
          try (Socket s = connect("lines", 7001)) {
            say(s, "hello\r\n", "+hello\r\n");
            s.getOutputStream().write(new byte[SIZE]);
            s.shutdownOutput();
            expect(text(s.getInputStream().readAllBytes()), ":" + (SIZE + 7) + "\r\n");
          }
        });
    check(
        "half-close at once",
        () -> {
          try (Socket s = connect("lines", 7001)) {
            say(s, "GET", "");
            s.shutdownOutput();
            expect(text(s.getInputStream().readAllBytes()), ":3\r\n");
          }
        });
    check(
        "a server that speaks first",
        () -> {
          try (Socket s = connect("greeter", 7002)) {
            say(s, "", "220 ready\r\n");
            say(s, "EHLO me\r\n", "250 EHLO me\r\n");
          }
        });
  }

  private static void check(String name, Check c) {
    try {
      c.run();
      System.out.println("ok " + name);
    } catch (Throwable e) {
      System.out.println("FAIL " + name + " " + e);
    }
  }

  private static void expect(String got, String want) {
    if (!got.equals(want)) {
      throw new AssertionError("\"" + got + "\", want \"" + want + "\"");
    }
  }

  private static HttpResponse<String> get(HttpClient client, String host, int port) throws Exception {
    URI uri = URI.create("http://" + host + suffix + ":" + port + "/work");
    return client.send(
        HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(60)).build(), BodyHandlers.ofString());
  }

  private static Socket connect(String host, int port) throws Exception {
    Socket s = new Socket(host + suffix, port);
    s.setSoTimeout(60_000);
    return s;
  }

  private static void say(Socket s, String what, String answer) throws Exception {
    s.getOutputStream().write(what.getBytes(StandardCharsets.US_ASCII));
    InputStream in = s.getInputStream();
    expect(text(in.readNBytes(answer.length())), answer);
  }

  private static String text(byte[] b) {
    return new String(b, StandardCharsets.US_ASCII);
  }
}
