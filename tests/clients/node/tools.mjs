// The tools that every SDK offers, and the question it asks.

import { z } from 'zod'

export const QUESTION = 'hi'

export const TOOLS = [
  {
    name: 'write_file',
    description: 'Write a file.',
    schema: {
      type: 'object',
      properties: { path: { type: 'string' }, content: { type: 'string' }, mode: { type: 'integer' } },
      required: ['path', 'content'],
    },
  },
  { name: 'now', description: 'The time.', schema: { type: 'object', properties: {} } },
]

export const TIMER = [
  {
    name: 'set_timer',
    description: 'Set a timer.',
    schema: {
      type: 'object',
      properties: { minutes: { type: 'integer', minimum: 1, maximum: 60 }, label: { enum: ['tea', 'eggs'] } },
      required: ['minutes', 'label'],
      additionalProperties: false,
    },
  },
]

// What an SDK's own loop runs: `ran` remembers it.
export const NUMBERS = z.object({ a: z.int(), b: z.int() })

export function adder() {
  const ran = []
  const add = ({ a, b }) => {
    ran.push([a, b])
    return String(a + b)
  }
  return { ran, add }
}

export const CITY = z.object({ name: z.string(), people: z.int() })

// Arguments; the text itself where it was cut off.
export function read(text) {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

// A fetch that remembers the bodies it sends.
export function listening() {
  const asked = []
  const listen = (input, init) => {
    if (init?.body) asked.push(JSON.parse(init.body))
    return fetch(input, init)
  }
  return { asked, fetch: listen }
}
