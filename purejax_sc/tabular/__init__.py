"""The paper's tabular study (sections 3.1, 4.1, "Information flow", appendix A) on the library's own updates."""
