// What one SDK sees of a server, as JSON on stdout:
//
//     node run.mjs openai_chat http://127.0.0.1:8000 plain calls
//
// Every SDK has a module of its own, which says in that SDK's words how to get an answer whole (`whole`) and in pieces
// (`streamed`), how to let the SDK run tools (`rounds`), how to ask for an object (`object`) and for what there is (`models`). A
// scenario is also the name of the model that is asked. What it throws is told in its place: one failure hides no other.

const [name, url, ...scenarios] = process.argv.slice(2)
const [file, variant] = name.split(':')
const { connect } = await import(`./${file}.mjs`)
const sdk = connect(url, variant)

const both = (asked = {}) => async (model) => ({
  whole: await caught(sdk.whole(model, asked)),
  streamed: await caught(sdk.streamed(model, asked)),
})

const known = {
  plain: both(),
  calls: both({ tools: true }),
  bare: both({ tools: true }),
  letters: both({ tools: true }),
  thinks: both({ thinking: true }),
  cut: both({ limit: 3 }),
  cut_call: both({ tools: true, limit: 24 }),
  broken: both(),
  nowhere: both(),
  must: both({ timer: true }),
  models: async () => sdk.models(),
  rounds: (model) => sdk.rounds(model),
  object: (model) => sdk.object(model),
  mixed: (model) => sdk.mixed(model),
}

function caught(promise) {
  return promise.catch((error) => ({
    error: { name: error.constructor.name, message: error.message, status: error.status ?? error.statusCode, stack: error.stack },
  }))
}

const seen = {}
for (const scenario of scenarios) seen[scenario] = await caught(known[scenario](scenario))
console.log(JSON.stringify(seen))
