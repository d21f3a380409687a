package dev.remora.lab;

/** An enum, one constant of which has a class of its own. */
public enum Color {
    RED,
    GREEN {
        @Override
        public String toString() {
            return "a green";
        }
    }
}
