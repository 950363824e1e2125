// openai: responses.

import OpenAI from 'openai'
import { ResponsesToolRunner, runnerFunction } from 'openai/helpers/responses-tool-runner'
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod'
import { adder, CITY, NUMBERS, QUESTION, read, TIMER, TOOLS } from './tools.mjs'

// Eagerly: a tool runs as soon as its call is complete, while the answer goes on.
const MODES = { whole: { stream: false }, streamed: { stream: true }, eager: { stream: true, eager: true } }

export function connect(url) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
  const { responses } = client

  function body(model, { tools, timer, limit }) {
    const offered = timer ? TIMER : tools ? TOOLS : []
    return {
      model,
      input: QUESTION,
      ...(limit && { max_output_tokens: limit }),
      ...(offered.length && {
        tools: offered.map(({ name, description, schema }) => ({
          type: 'function',
          name,
          description,
          parameters: schema,
          strict: false,
        })),
      }),
      ...(timer && { tool_choice: 'required', parallel_tool_calls: false }),
    }
  }

  return {
    whole: async (model, asked) => answer(await responses.create(body(model, asked))),

    async streamed(model, asked) {
      const pieces = []
      const done = []
      let last
      const stream = responses.stream(body(model, asked))
      for await (const event of stream) {
        if (event.type === 'response.output_text.delta') pieces.push(event.delta)
        if (event.type === 'response.function_call_arguments.done') done.push([event.name, read(event.arguments)])
        last = event
      }
      if (last.type === 'response.failed') return { error: last.response.error, pieces }
      return { ...answer(await stream.finalResponse()), pieces, done }
    },

    async rounds(model) {
      const seen = {}
      for (const [mode, how] of Object.entries(MODES)) {
        const { ran, add } = adder()
        const tool = zodResponsesFunction({ name: 'add', description: 'Add.', parameters: NUMBERS, function: add })
        const runner = new ResponsesToolRunner({ functions: [runnerFunction(tool)] })
        const final = await runner.run(client, { model, input: [{ role: 'user', content: QUESTION }] }, how)
        seen[mode] = { said: final.output_text, ran }
      }
      return seen
    },

    async object(model) {
      const asked = { model, input: QUESTION, text: { format: zodTextFormat(CITY, 'city') } }
      const whole = await responses.parse(asked)
      const streamed = await responses.stream(asked).finalResponse()
      return { whole: whole.output_parsed, streamed: streamed.output_parsed }
    },
  }
}

function answer(response) {
  const { output, usage, status, incomplete_details, error } = response
  const calls = output.filter((item) => item.type === 'function_call')
  const thoughts = output.filter((item) => item.type === 'reasoning').flatMap((item) => item.content)
  return {
    said: response.output_text,
    thought: thoughts.map((part) => part.text).join(''),
    calls: calls.map((call) => [call.name, read(call.arguments)]),
    ids: calls.map((call) => call.call_id),
    reason: incomplete_details?.reason ?? status,
    usage: [usage.input_tokens, usage.output_tokens],
    ...(error && { error }),
  }
}
