package dev.remora.lab;

/** What Sampler.refuse throws: an exception that its interface declares. */
public class RefusedException extends Exception {
    public RefusedException(String message) {
        super(message);
    }
}
