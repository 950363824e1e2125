"""What results say: scores, comparisons, reports, and the policy that follows."""
