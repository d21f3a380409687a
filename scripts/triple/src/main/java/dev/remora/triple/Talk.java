package dev.remora.triple;

import org.apache.dubbo.common.stream.StreamObserver;

/** Calls of each kind that Triple has. */
public interface Talk {
    String echo(String text);

    /** Returns the attachment with this name. */
    String attachment(String name);

    /** Throws IllegalStateException. */
    String fail(String why);

    String sleep(int milliseconds);

    /** Sends n numbers. */
    void count(int n, StreamObserver<String> out);

    /** Sends each text back at once. */
    StreamObserver<String> repeat(StreamObserver<String> out);

    /** Sends the sum of all lengths at the end. */
    StreamObserver<String> measure(StreamObserver<String> out);
}
