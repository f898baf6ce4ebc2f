"""AgileRL Arena's wire protocol: deployments' routes, and the few of its control plane that its clients need."""
