// A tool call with JavaScript, and its answer as a stream: node examples/http/chat.mjs
const base = process.env.OPENAI_BASE_URL || "http://127.0.0.1:8000/v1";
const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];
const response = await fetch(`${base}/chat/completions`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ messages: [{ role: "user", content: "What is the weather in Paris?" }], tools, tool_choice: "required", stream: true }),
});
if (!response.ok) throw new Error(await response.text());

const call = { name: "", arguments: "" };
let rest = "";
for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + piece).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
    const delta = JSON.parse(line.slice(6)).choices[0]?.delta ?? {};
    for (const { function: part } of delta.tool_calls ?? []) {
      call.name += part.name ?? "";
      call.arguments += part.arguments;
    }
  }
}
console.log(call.name, JSON.parse(call.arguments));
