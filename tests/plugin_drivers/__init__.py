"""Drivers for the plugin contract: each runs one agent framework, observed by its plugin.

The agents are real and their models scripted.  To add a framework, write a driver and list it here.
"""

from plugin_drivers.adk import Adk
from plugin_drivers.claude_agent import ClaudeAgent
from plugin_drivers.driver import Driver
from plugin_drivers.langchain import BlockingLangChain, LangChain
from plugin_drivers.openai_agents import OpenAIAgents, OpenAIRunHooks
from plugin_drivers.pydantic_ai import PydanticAI
from plugin_drivers.strands import BlockingStrands, Strands

__all__ = [
    "DRIVERS",
    "Adk",
    "BlockingLangChain",
    "BlockingStrands",
    "ClaudeAgent",
    "LangChain",
    "OpenAIAgents",
    "OpenAIRunHooks",
    "PydanticAI",
    "Strands",
]

DRIVERS: list[type[Driver]] = [
    Adk,
    ClaudeAgent,
    LangChain,
    BlockingLangChain,
    OpenAIAgents,
    OpenAIRunHooks,
    PydanticAI,
    Strands,
    BlockingStrands,
]
