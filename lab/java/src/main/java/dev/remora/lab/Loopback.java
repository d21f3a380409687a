package dev.remora.lab;

/** 127.0.0.1, in a spelling in which Dubbo leaves it alone. */
final class Loopback {
    /**
     * The address as one number. Dubbo does not bind to "localhost" or to what
     * begins with "127.", and a consumer told to call it calls the host's address
     * in the network instead.
     */
    static final String HOST = "2130706433";

    private Loopback() {}
}
