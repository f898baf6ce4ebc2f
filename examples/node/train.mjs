// Samples, trains one step and syncs the weights, from Node.js: all that Python can do, by the same protos.
//
//   npm install && node train.mjs 127.0.0.1:50051
//
// With TLS and a token, and the server's CA where the system does not know it:
//
//   GRADWIRE_TOKEN=... GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=tls.crt node train.mjs grpcs://gpu1:50051
import { credentials, InterceptingCall, loadPackageDefinition, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { randomUUID } from "node:crypto";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

// What went wrong in one line: of a refused call its code and the server's words.
const fail = (error) => {
  console.error(error.details === undefined ? error.message : `${status[error.code]}: ${error.details}`);
  process.exit(1);
};
process.on("uncaughtException", fail);

const text = process.argv[2] || process.env.GRADWIRE_ADDRESS || "127.0.0.1:50051";
const address = new URL(text.includes("://") ? text : `grpc://${text}`);
const secure = address.protocol === "grpcs:";
if (!secure && address.protocol !== "grpc:") throw new Error(`${text}: write host:port, grpc://... or grpcs://...`);
const token = process.env.GRADWIRE_TOKEN;
if (token && !secure && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(address.hostname))
  throw new Error(`the token would travel to ${text} in the clear; connect with grpcs://${address.host}`);
const protos = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "protos");
const files = ["sampling", "training", "weight", "job"].map((name) => `gradwire/v1/${name}.proto`);
const { v1 } = loadPackageDefinition(
  loadSync(files, { includeDirs: [protos], keepCase: true, longs: Number, enums: String, defaults: true }),
).gradwire;

// Each call carries the token. (Call credentials would do it too, but only with TLS.)
const withToken = (options, nextCall) =>
  new InterceptingCall(nextCall(options), {
    start(metadata, listener, next) {
      if (token) metadata.set("authorization", `Bearer ${token}`);
      next(metadata, listener);
    },
  });
const connect = (Service) =>
  new Service(
    `${address.hostname}:${address.port || 50051}`,
    secure ? credentials.createSsl() : credentials.createInsecure(),
    { interceptors: [withToken] },
  );
const [sampling, training, weights, jobs] = [
  v1.SamplingService, v1.TrainingService, v1.WeightService, v1.JobService,
].map(connect);

// A unary call as a promise. A failed call rejects with its code and the server's words.
const call = (client, method, request) =>
  new Promise((resolve, reject) =>
    client[method](request, (error, response) => (error ? reject(error) : resolve(response))),
  );

// Numbers travel as little-endian bytes; a typed array's memory is just that.
const ragged = (values, dtype) => ({
  ragged: {
    dtype,
    data: Buffer.from(values.buffer, values.byteOffset, values.byteLength),
    row_offsets: Buffer.from(new BigInt64Array([0n, BigInt(values.length)]).buffer),
  },
});

const stream = sampling.GenerateStream({
  prompt: { chat: { messages: [{ role: "user", content: "Say hello." }] } },
  params: { max_tokens: 24 },
});
for await (const message of stream) {
  for (const delta of message.delta?.completions ?? []) process.stdout.write(delta.text);
}
console.log();

let jobId;
for await (const { progress, created } of jobs.CreateJobs({ training: { optimizer: { learning_rate: 1e-4 } } })) {
  if (progress) console.log(progress.message);
  if (created) jobId = created.jobs[0].job_id;
}

const tokens = new Int32Array([72, 101, 108, 108, 111]);
const result = await call(training, "FwdBwd", {
  job_id: jobId,
  operation: { request_id: randomUUID() },
  batch: { input_ids: ragged(tokens, "DATA_TYPE_INT32") },
  loss: { name: "cross_entropy" },
});
const step = await call(training, "Step", { job_id: jobId, operation: { request_id: randomUUID() } });
const sync = await call(weights, "Sync", { training_job_id: jobId, operation: { request_id: randomUUID() } });
console.log(`loss ${result.loss.toFixed(3)}, grad norm ${step.grad_norm.toFixed(3)}, weights ${sync.weight_version}`);
await call(jobs, "DestroyJob", { job_id: jobId });
