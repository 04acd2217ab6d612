"""The owners of quota: projects, departments, their quotas, priority classes, the fairness audit."""
