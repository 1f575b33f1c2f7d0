"""What runs inside the container: isolation, serving process, zygote, child."""
