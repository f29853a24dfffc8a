// A FIFO queue worked off by npm's sqs-consumer, whose handler fails once: URL KEY SECRET QUEUE.
// Prints one line of JSON: what was handled, with its receive count, in order.
"use strict";

const sdk = require("@aws-sdk/client-sqs");
const { Consumer } = require("sqs-consumer");

async function main([endpoint, accessKeyId, secretAccessKey, name]) {
  const sqs = new sdk.SQSClient({
    region: "eu-central-1",
    credentials: { accessKeyId, secretAccessKey },
    endpoint,
    maxAttempts: 1,
  });
  const { QueueUrl } = await sqs.send(
    new sdk.CreateQueueCommand({
      QueueName: name,
      Attributes: { FifoQueue: "true", ContentBasedDeduplication: "true" },
    }),
  );
  for (const body of ["a1", "b1", "a2", "b2", "a3"])
    await sqs.send(
      new sdk.SendMessageCommand({ QueueUrl, MessageBody: body, MessageGroupId: body[0] }),
    );
  const handled = [];
  const errors = [];
  await new Promise((resolve) => {
    const consumer = Consumer.create({
      queueUrl: QueueUrl,
      sqs,
      batchSize: 10,
      waitTimeSeconds: 5,
      visibilityTimeout: 600,
      terminateVisibilityTimeout: true,
      suppressFifoWarning: true,
      messageSystemAttributeNames: ["ApproximateReceiveCount"],
      handleMessage: async (message) => {
        const count = message.Attributes.ApproximateReceiveCount;
        if (message.Body === "a1" && count === "1") throw new Error("once");
        handled.push(`${message.Body}:${count}`);
        return message;
      },
    });
    consumer.on("processing_error", (error) => errors.push(error.message));
    consumer.on("error", (error) => errors.push(String(error)));
    consumer.on("message_processed", () => {
      if (handled.length === 5) {
        consumer.stop();
      }
    });
    consumer.on("stopped", resolve);
    consumer.start();
  });
  const left = await sqs.send(
    new sdk.GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }),
  );
  const figures = left.Attributes;
  console.log(
    JSON.stringify({
      handled,
      errors: errors.length,
      left: [
        figures.ApproximateNumberOfMessages,
        figures.ApproximateNumberOfMessagesNotVisible,
      ],
    }),
  );
  sqs.destroy();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
