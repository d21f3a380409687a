import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/**
 * Java's HttpClient, which offers HTTP/2 and HTTP/1.1: {@code java Get URL...}. Prints one line for each URL:
 * the version, the status and the body, or the exception.
 */
public class Get {
  public static void main(String[] args) {
    HttpClient client = HttpClient.newHttpClient();
    for (String url : args) {
      try {
        var response = client.send(HttpRequest.newBuilder(URI.create(url)).build(), BodyHandlers.ofString());
        System.out.println(response.version() + " " + response.statusCode() + " " + response.body());
      } catch (Exception e) {
        System.out.println(e);
      }
    }
  }
}
