"""What runs below the portable classes: campaigns, memberships, subscriptions, dispatch."""
