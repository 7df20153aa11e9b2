"""The attack as a program: families of attacks on the command line, seeded and judged from outside the package."""
