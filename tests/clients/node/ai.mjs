// ai, the AI SDK, over its providers: ai:compatible and ai:chat (chat completions), ai:openai (responses), ai:anthropic (messages).

import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateObject, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from 'ai'
import { adder, CITY, NUMBERS, QUESTION, TIMER, TOOLS } from './tools.mjs'

globalThis.AI_SDK_LOG_WARNINGS = false

const PROVIDERS = {
  compatible: (options) =>
    createOpenAICompatible({ name: 'callsmith', includeUsage: true, supportsStructuredOutputs: true, ...options }),
  chat: (options) => createOpenAI(options).chat,
  openai: createOpenAI,
  anthropic: createAnthropic,
}

// Without the force, only models known by name are asked to think.
const THINKING = { reasoning: 'low', providerOptions: { openai: { forceReasoning: true } } }

export function connect(url, variant) {
  const provider = PROVIDERS[variant]({ baseURL: `${url}/v1`, apiKey: 'none' })

  function body(model, { tools, timer, limit, thinking }) {
    const offered = timer ? TIMER : tools ? TOOLS : []
    return {
      model: provider(model),
      prompt: QUESTION,
      maxRetries: 0,
      maxOutputTokens: limit ?? 1000,
      ...(thinking && THINKING),
      ...(offered.length && {
        tools: Object.fromEntries(
          offered.map(({ name, description, schema }) => [name, tool({ description, inputSchema: jsonSchema(schema) })]),
        ),
      }),
      ...(timer && { toolChoice: 'required' }),
    }
  }

  async function followed(result) {
    const pieces = []
    const errors = []
    for await (const part of result.fullStream) {
      if (part.type === 'text-delta') pieces.push(part.text)
      if (part.type === 'error') errors.push(part.error)
    }
    return { pieces, errors }
  }

  return {
    whole: async (model, asked) => answer(await generateText(body(model, asked))),

    async streamed(model, asked) {
      const result = streamText({ ...body(model, asked), onError: () => {} })
      const { pieces, errors } = await followed(result)
      if (errors.length) return { error: { message: errors[0].message ?? JSON.stringify(errors[0]) }, pieces }
      const final = {}
      for (const key of ['text', 'reasoningText', 'toolCalls', 'finishReason', 'usage', 'warnings']) final[key] = await result[key]
      return { ...answer(final), pieces }
    },

    async rounds(model) {
      const limits = { maxRetries: 0, maxOutputTokens: 1000, stopWhen: stepCountIs(5) }
      const asked = { model: provider(model), prompt: QUESTION, ...limits, ...THINKING }
      const seen = {}
      for (const stream of [false, true]) {
        const { ran, add } = adder()
        const tools = { add: tool({ description: 'Add.', inputSchema: NUMBERS, execute: add }) }
        const result = stream ? streamText({ ...asked, tools }) : await generateText({ ...asked, tools })
        const errors = stream ? (await followed(result)).errors : []
        const [said, steps] = [await result.text, await result.steps]
        seen[stream ? 'streamed' : 'whole'] = { said, ran, steps: steps.length, ...(errors.length && { errors }) }
      }
      return seen
    },

    // Tools, and then an object.
    async mixed(model) {
      const { ran, add } = adder()
      const result = streamText({
        model: provider(model),
        prompt: QUESTION,
        maxRetries: 0,
        maxOutputTokens: 1000,
        tools: { add: tool({ description: 'Add.', inputSchema: NUMBERS, execute: add }) },
        output: Output.object({ schema: CITY }),
        stopWhen: stepCountIs(5),
      })
      await followed(result)
      return { ran, object: await result.output }
    },

    async object(model) {
      const asked = { model: provider(model), prompt: QUESTION, maxRetries: 0, maxOutputTokens: 1000 }
      const text = await generateText({ ...asked, output: Output.object({ schema: CITY }) })
      const stream = streamText({ ...asked, output: Output.object({ schema: CITY }) })
      await followed(stream)
      const object = await generateObject({ ...asked, schema: CITY })
      return { whole: text.output, streamed: await stream.output, object: object.object }
    },
  }
}

function answer({ text, reasoningText, toolCalls, finishReason, usage, warnings }) {
  return {
    said: text,
    thought: reasoningText ?? '',
    calls: toolCalls.map((call) => [call.toolName, call.input]),
    invalid: toolCalls.filter((call) => call.invalid).length,
    ids: toolCalls.map((call) => call.toolCallId),
    reason: finishReason,
    usage: [usage.inputTokens, usage.outputTokens],
    warnings: warnings ?? [],
  }
}
