"""What was asked, as a value: pipelines, checked and compiled to stages before anything runs."""
