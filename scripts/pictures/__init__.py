"""Pictures of the dashboard: a shop with a day behind it, and a camera."""
