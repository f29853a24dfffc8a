"""What stores ask of each other: commands of groups that another one leads, and questions."""
