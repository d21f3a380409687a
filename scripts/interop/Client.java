import java.io.ByteArrayInputStream;
import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;

/**
 * Java's HttpClient through the sidecars: {@code java Client.java PORT}. Prints one line for each
 * check, "ok NAME" or "FAIL NAME DETAIL".
 */
public class Client {
  private static final int LIMIT = 4 << 20;
  private static final Random RANDOM = new Random();

  private interface Check {
    void run() throws Exception;
  }

  public static void main(String[] args) {
    int port = Integer.parseInt(args[0]);
    var direct = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    var proxied =
        HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .proxy(ProxySelector.of(new InetSocketAddress("127.0.0.1", port)))
            .build();
    String base = "http://127.0.0.1:" + port;

    for (int size : new int[] {0, 1, 300, 16384, 100_000, 1 << 20, LIMIT}) {
      check("length, " + size + " bytes", () -> echo(direct, base, size, false, ""));
      check("chunked, " + size + " bytes", () -> echo(direct, base, size, true, "?chunked"));
      check("proxy, " + size + " bytes", () -> echo(proxied, "http://compute", size, false, ""));
      check("ended by close, " + size + " bytes", () -> echo(direct, base, size, false, "?close"));
    }
    check("expect-continue", () -> expectContinue(direct, base));
    check("one byte past the limit", () -> pastTheLimit(direct, base));
    check("HEAD", () -> status(direct, base, "HEAD", 200));
    check("204", () -> status(direct, base, "GET", 204));
    check("304", () -> status(direct, base, "GET", 304));
    check("404", () -> status(direct, base, "GET", 404));
    check("500", () -> status(direct, base, "DELETE", 500));
    check("500 requests at a time", () -> many(direct, base));
    // A client that upgrades to HTTP/2 when it can must do without.
    check("default version", () -> echo(HttpClient.newHttpClient(), base, 300, false, ""));
  }

  private static void check(String name, Check c) {
    try {
      c.run();
      System.out.println("ok Java: " + name);
    } catch (Throwable t) {
      System.out.println("FAIL Java: " + name + " " + t);
    }
  }

  private static byte[] bytes(int size) {
    byte[] b = new byte[size];
    RANDOM.nextBytes(b);
    return b;
  }

  private static HttpRequest.Builder to(String url) {
    return HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(120));
  }

  private static void echo(HttpClient c, String base, int size, boolean chunked, String how)
      throws Exception {
    byte[] body = bytes(size);
    BodyPublisher p =
        chunked
            ? BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body))
            : BodyPublishers.ofByteArray(body);
    String nonce = Long.toHexString(RANDOM.nextLong());
    var r =
        c.send(
            to(base + "/echo" + how).header("x-nonce", nonce).POST(p).build(),
            BodyHandlers.ofByteArray());
    want(r.statusCode(), 200);
    want(r.headers().firstValue("x-nonce").orElse(""), nonce);
    want(r.headers().allValues("set-cookie"), List.of("a=1", "b=2"));
    if (!Arrays.equals(r.body(), body)) throw new AssertionError("body differs");
  }

  private static void expectContinue(HttpClient c, String base) throws Exception {
    byte[] body = bytes(LIMIT);
    var r =
        c.send(
            to(base + "/echo").expectContinue(true).POST(BodyPublishers.ofByteArray(body)).build(),
            BodyHandlers.ofByteArray());
    want(r.statusCode(), 200);
    if (!Arrays.equals(r.body(), body)) throw new AssertionError("body differs");
  }

  /**
   * The whole body is on its way when the answer comes; the answer has to survive that. Without
   * Expect: Java 17 waits forever for a 100 that a 413 has made needless (JDK-8286171).
   */
  private static void pastTheLimit(HttpClient c, String base) throws Exception {
    var p = BodyPublishers.ofByteArray(new byte[LIMIT + 1]);
    var r = c.send(to(base + "/echo").POST(p).build(), BodyHandlers.ofByteArray());
    want(r.statusCode(), 200);
    want(r.body().length, LIMIT + 1);
    want(r.headers().firstValue("connection").orElse(""), "close");
  }

  private static void status(HttpClient c, String base, String method, int status)
      throws Exception {
    var r =
        c.send(
            to(base + "/status/" + status).method(method, BodyPublishers.noBody()).build(),
            BodyHandlers.ofString());
    want(r.statusCode(), status);
    boolean empty = method.equals("HEAD") || status == 204 || status == 304;
    want(r.body(), empty ? "" : "status " + status + "\n");
    want(r.headers().firstValue("x-remora-error").isPresent(), false);
  }

  private static void many(HttpClient c, String base) {
    var all = new ArrayList<CompletableFuture<Void>>();
    for (int i = 0; i < 500; i++) {
      byte[] body = bytes(RANDOM.nextInt(5000));
      String nonce = "nonce-" + i;
      all.add(
          c.sendAsync(
                  to(base + "/echo")
                      .header("x-nonce", nonce)
                      .POST(BodyPublishers.ofByteArray(body))
                      .build(),
                  BodyHandlers.ofByteArray())
              .thenAccept(
                  (HttpResponse<byte[]> r) -> {
                    want(r.statusCode(), 200);
                    want(r.headers().firstValue("x-nonce").orElse(""), nonce);
                    if (!Arrays.equals(r.body(), body)) throw new AssertionError("body differs");
                  }));
    }
    all.forEach(CompletableFuture::join);
  }

  private static void want(Object got, Object want) {
    if (!got.equals(want)) throw new AssertionError("got " + got + ", want " + want);
  }
}
