"""Why, what-if, replay, audit."""
