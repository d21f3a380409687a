package dev.remora.lab;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.apache.dubbo.rpc.service.GenericService;

/**
 * What Dubbo's own generic invocation makes of each shape, as JSON: beans are maps, enums are their names. A key that
 * is no text is its JSON, and what contains itself is the path to it, as in {"$ref":"$.friend"}.
 */
final class Generic {
    private final StringBuilder json = new StringBuilder();
    private final List<Object> open = new ArrayList<>();
    private final List<String> paths = new ArrayList<>();

    private Generic() {}

    static void run(GenericService service) {
        for (String name : Shapes.all().keySet()) {
            Object result = service.$invoke("shape", new String[] {"java.lang.String"}, new Object[] {name});
            System.out.println("shape " + name + "\t" + text(result));
        }
    }

    private static String text(Object value) {
        Generic g = new Generic();
        g.value(value, "$");
        return g.json.toString();
    }

    private void value(Object value, String path) {
        for (int i = 0; i < open.size(); i++) {
            if (open.get(i) == value) {
                json.append("{\"$ref\":").append(quoted(paths.get(i))).append('}');
                return;
            }
        }
        if (value instanceof Map || value instanceof Collection) {
            open.add(value);
            paths.add(path);
            if (value instanceof Map<?, ?> map) {
                entries(map, path);
            } else {
                items((Collection<?>) value, path);
            }
            open.remove(open.size() - 1);
            paths.remove(paths.size() - 1);
        } else if (value instanceof String || value instanceof Enum) {
            json.append(quoted(value instanceof Enum<?> e ? e.name() : (String) value));
        } else {
            json.append(value);
        }
    }

    private void entries(Map<?, ?> map, String path) {
        Map<String, Object> sorted = new TreeMap<>();
        map.forEach((key, value) -> sorted.put(key(key), value));
        sorted.remove("class");
        String before = "{";
        for (Map.Entry<String, Object> entry : sorted.entrySet()) {
            json.append(before).append(quoted(entry.getKey())).append(':');
            value(entry.getValue(), path + "." + entry.getKey());
            before = ",";
        }
        json.append(sorted.isEmpty() ? "{}" : "}");
    }

    private void items(Collection<?> items, String path) {
        int i = 0;
        json.append('[');
        for (Object item : items) {
            json.append(i == 0 ? "" : ",");
            value(item, path + "[" + i++ + "]");
        }
        json.append(']');
    }

    private static String key(Object key) {
        if (key instanceof Enum<?> e) {
            return e.name();
        }
        return key instanceof Map || key instanceof Collection ? text(key) : Objects.toString(key);
    }

    private static String quoted(String s) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
