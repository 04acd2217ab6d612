"""Who owns quota: projects, departments, their quotas, priority classes, the fairness audit."""
