// ollama: /api/chat.

import { Ollama } from 'ollama'
import { z } from 'zod'
import { adder, CITY, NUMBERS, QUESTION, TIMER, TOOLS } from './tools.mjs'

export function connect(url) {
  const client = new Ollama({ host: url })
  const messages = [{ role: 'user', content: QUESTION }]

  function body(model, { tools, timer, limit, thinking }) {
    const offered = timer ? TIMER : tools ? TOOLS : []
    return {
      model,
      messages,
      ...(limit && { options: { num_predict: limit } }),
      ...(thinking && { think: true }),
      ...(offered.length && { tools: offered.map(described) }),
      ...(timer && { tool_choice: 'required', parallel_tool_calls: false }),
    }
  }

  // What its users write: the pieces of a stream put together by hand.
  async function gathered(asked) {
    const pieces = []
    const message = { role: 'assistant', content: '', thinking: '', tool_calls: [] }
    let last
    try {
      for await (const part of await client.chat({ ...asked, stream: true })) {
        if (part.message.content) pieces.push(part.message.content)
        message.thinking += part.message.thinking ?? ''
        message.tool_calls.push(...(part.message.tool_calls ?? []))
        last = part
      }
    } catch (error) {
      return { error: { name: error.constructor.name, message: error.message }, pieces }
    }
    return { answered: { ...last, message: { ...message, content: pieces.join('') } }, pieces }
  }

  return {
    whole: async (model, asked) => answer(await client.chat(body(model, asked))),

    async streamed(model, asked) {
      const { answered, ...seen } = await gathered(body(model, asked))
      return { ...seen, ...(answered && answer(answered)) }
    },

    // The SDK has no loop of its own: this is the one its users write.
    async rounds(model) {
      const seen = {}
      for (const stream of [false, true]) {
        const { ran, add } = adder()
        const tools = [described({ name: 'add', description: 'Add.', schema: z.toJSONSchema(NUMBERS) })]
        const history = [...messages]
        for (let step = 0; step < 5; step++) {
          const asked = { model, messages: history, tools }
          const { message } = stream ? (await gathered(asked)).answered : await client.chat(asked)
          history.push(message)
          if (!message.tool_calls?.length) break
          for (const call of message.tool_calls) {
            history.push({ role: 'tool', tool_name: call.function.name, content: add(call.function.arguments) })
          }
        }
        seen[stream ? 'streamed' : 'whole'] = { said: history.at(-1).content, ran }
      }
      return seen
    },

    async models() {
      const generated = await client.generate({ model: 'plain', prompt: QUESTION })
      return {
        listed: (await client.list()).models.map((model) => model.name),
        one: (await client.show({ model: 'plain' })).capabilities,
        running: (await client.ps()).models.length,
        generated: generated.response,
      }
    },

    async object(model) {
      const asked = { model, messages, format: z.toJSONSchema(CITY) }
      const whole = await client.chat(asked)
      const { answered } = await gathered(asked)
      return { whole: JSON.parse(whole.message.content), streamed: JSON.parse(answered.message.content) }
    },
  }
}

function described({ name, description, schema }) {
  return { type: 'function', function: { name, description, parameters: schema } }
}

function answer({ message, done_reason, prompt_eval_count, eval_count }) {
  return {
    said: message.content,
    thought: message.thinking ?? '',
    calls: (message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]),
    reason: done_reason,
    usage: [prompt_eval_count, eval_count],
  }
}
