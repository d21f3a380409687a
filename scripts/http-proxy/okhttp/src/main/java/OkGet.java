import okhttp3.OkHttpClient;
import okhttp3.Request;

/** OkHttp with its defaults: {@code java OkGet URL}. Prints the body. */
public class OkGet {
  public static void main(String[] args) throws Exception {
    try (var response = new OkHttpClient().newCall(new Request.Builder().url(args[0]).build()).execute()) {
      System.out.print(response.body().string());
    }
  }
}
