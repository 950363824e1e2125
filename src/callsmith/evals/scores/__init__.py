"""What results say: scores, comparisons, reports, and how a model is best asked."""
