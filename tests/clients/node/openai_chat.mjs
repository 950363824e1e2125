// openai: chat completions.

import OpenAI from 'openai'
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod'
import { adder, CITY, NUMBERS, QUESTION, read, TIMER, TOOLS } from './tools.mjs'

const messages = [{ role: 'user', content: QUESTION }]

export function connect(url) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
  const { completions } = client.chat

  function body(model, { tools, timer, limit }) {
    const offered = timer ? TIMER : tools ? TOOLS : []
    return {
      model,
      messages,
      ...(limit && { max_completion_tokens: limit }),
      ...(offered.length && {
        tools: offered.map(({ name, description, schema }) => ({
          type: 'function',
          function: { name, description, parameters: schema },
        })),
      }),
      ...(timer && { tool_choice: 'required', parallel_tool_calls: false }),
    }
  }

  return {
    whole: async (model, asked) => answer(await completions.create(body(model, asked))),

    async streamed(model, asked) {
      const pieces = []
      const done = []
      let thought = ''
      const stream = completions.stream({ ...body(model, asked), stream_options: { include_usage: true } })
      stream.on('content', (piece) => pieces.push(piece))
      stream.on('chunk', (chunk) => (thought += chunk.choices[0]?.delta.reasoning_content ?? ''))
      stream.on('tool_calls.function.arguments.done', (call) => done.push([call.name, read(call.arguments)]))
      try {
        return { ...answer(await stream.finalChatCompletion()), thought, pieces, done }
      } catch (error) {
        return { error: { name: error.constructor.name, message: error.message }, pieces }
      }
    },

    async rounds(model) {
      const seen = {}
      for (const stream of [false, true]) {
        const { ran, add } = adder()
        const tool = zodFunction({ name: 'add', description: 'Add.', parameters: NUMBERS, function: add })
        const runner = completions.runTools({
          model,
          messages,
          stream,
          tools: [tool],
          ...(stream && { stream_options: { include_usage: true } }),
        })
        const said = await runner.finalContent()
        const { prompt_tokens, completion_tokens } = await runner.totalUsage()
        seen[stream ? 'streamed' : 'whole'] = { said, ran, usage: [prompt_tokens, completion_tokens] }
      }
      return seen
    },

    async models() {
      return { listed: (await client.models.list()).data.map((model) => model.id), one: (await client.models.retrieve('plain')).id }
    },

    async object(model) {
      const asked = { model, messages, response_format: zodResponseFormat(CITY, 'city') }
      const whole = await completions.parse(asked)
      const streamed = await completions.stream(asked).finalChatCompletion()
      return { whole: whole.choices[0].message.parsed, streamed: streamed.choices[0].message.parsed }
    },
  }
}

function answer({ choices: [{ message, finish_reason }], usage }) {
  return {
    said: message.content ?? '',
    thought: message.reasoning_content ?? '',
    calls: (message.tool_calls ?? []).map((call) => [call.function.name, read(call.function.arguments)]),
    ids: (message.tool_calls ?? []).map((call) => call.id),
    reason: finish_reason,
    usage: [usage.prompt_tokens, usage.completion_tokens],
  }
}
