// @anthropic-ai/sdk: messages.

import Anthropic from '@anthropic-ai/sdk'
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod'
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod'
import { adder, CITY, listening, NUMBERS, QUESTION, TIMER, TOOLS } from './tools.mjs'

const messages = [{ role: 'user', content: QUESTION }]

// Eagerly: a tool runs as soon as its call is complete, while the answer goes on.
const MODES = { whole: { stream: false }, streamed: { stream: true }, eager: { stream: true, runToolsEagerly: true } }

export function connect(url) {
  const { asked: sent, fetch } = listening()
  const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0, fetch })

  function body(model, { tools, timer, limit, thinking }) {
    const offered = timer ? TIMER : tools ? TOOLS : []
    return {
      model,
      messages,
      max_tokens: limit ?? 4000,
      ...(thinking && { thinking: { type: 'enabled', budget_tokens: 1024 } }),
      ...(offered.length && {
        tools: offered.map(({ name, description, schema }) => ({ name, description, input_schema: schema })),
      }),
      ...(timer && { tool_choice: { type: 'any', disable_parallel_tool_use: true } }),
    }
  }

  return {
    whole: async (model, asked) => answer(await client.messages.create(body(model, asked))),

    async streamed(model, asked) {
      const pieces = []
      const done = []
      const stream = client.messages.stream(body(model, asked))
      stream.on('text', (piece) => pieces.push(piece))
      stream.on('contentBlock', (block) => block.type === 'tool_use' && done.push([block.name, block.input]))
      try {
        return { ...answer(await stream.finalMessage()), pieces, done }
      } catch (error) {
        return { error: { name: error.constructor.name, message: error.message, type: error.type }, pieces }
      }
    },

    async rounds(model) {
      const seen = {}
      for (const [mode, how] of Object.entries(MODES)) {
        sent.length = 0
        const { ran, add } = adder()
        const tool = betaZodTool({ name: 'add', description: 'Add.', inputSchema: NUMBERS, run: add })
        const final = await client.beta.messages.toolRunner({ model, messages, max_tokens: 1000, tools: [tool], ...how })
        seen[mode] = {
          said: final.content.map((block) => block.text ?? '').join(''),
          ran,
          threads: sent.map((body) => 'thread' in body),
          messages: sent.map((body) => body.messages.length),
        }
      }
      return seen
    },

    async models() {
      const counted = await client.messages.countTokens({ model: 'plain', messages })
      const listed = []
      for await (const model of client.models.list()) listed.push(model.id)
      return { listed, one: (await client.models.retrieve('plain')).id, counted: counted.input_tokens }
    },

    async object(model) {
      const asked = { model, messages, max_tokens: 1000, output_config: { format: zodOutputFormat(CITY) } }
      const whole = await client.messages.parse(asked)
      const streamed = await client.messages.stream(asked).finalMessage()
      return { whole: whole.parsed_output, streamed: streamed.parsed_output }
    },
  }
}

function answer({ content, stop_reason, usage }) {
  const of = (type) => content.filter((block) => block.type === type)
  return {
    said: of('text').map((block) => block.text).join(''),
    thought: of('thinking').map((block) => block.thinking).join(''),
    calls: of('tool_use').map((block) => [block.name, block.input]),
    ids: of('tool_use').map((block) => block.id),
    reason: stop_reason,
    usage: [usage.input_tokens, usage.output_tokens],
  }
}
