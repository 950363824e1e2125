"""Names that other projects have for what is here, so that code written for them runs with another import.

adr010 (RuvLLM's ADR-010), m21 (HearthNet's M21), vllm_rs (vLLM.rs), edgevox (EdgeVox). Each name is a thin face of what the rest
of the package does: nothing is done here a second time.
"""
