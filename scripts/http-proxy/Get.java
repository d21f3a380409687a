import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** Java's own clients: {@code java Get HttpClient|HttpURLConnection URL}. Prints the body. */
public class Get {
  public static void main(String[] args) throws Exception {
    URI url = URI.create(args[1]);
    if (args[0].equals("HttpClient")) {
      var request = HttpRequest.newBuilder(url).build();
      System.out.print(HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).body());
    } else {
      var c = (HttpURLConnection) url.toURL().openConnection();
      System.out.print(new String(c.getInputStream().readAllBytes()));
    }
  }
}
