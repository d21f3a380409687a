package app;

import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** Spring Boot, as its guide begins. Its settings are those of application properties. */
@SpringBootApplication
@RestController
public class App {
    @GetMapping("/")
    String name() {
        return System.getenv("NAME") + "\n";
    }

    @PostMapping("/orders")
    Map<String, Object> order(@RequestBody Map<String, Object> order) {
        return Map.of("name", System.getenv("NAME"), "order", order);
    }

    public static void main(String[] args) {
        SpringApplication.run(App.class, args);
    }
}
