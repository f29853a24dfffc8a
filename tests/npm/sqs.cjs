// One walk through SQS with the AWS SDK for JavaScript: URL KEY SECRET.
// Prints one line of JSON, or fails. The SDK itself checks every MD5 it is sent.
"use strict";

const sdk = require("@aws-sdk/client-sqs");

async function main([endpoint, accessKeyId, secretAccessKey]) {
  const options = { region: "eu-central-1", credentials: { accessKeyId, secretAccessKey } };
  const client = new sdk.SQSClient({ ...options, endpoint, maxAttempts: 1 });
  const call = (name, input) => client.send(new sdk[`${name}Command`](input));

  const { QueueUrl } = await call("CreateQueue", {
    QueueName: "node.fifo",
    Attributes: { FifoQueue: "true", ContentBasedDeduplication: "true" },
    tags: { made: "by node" },
  });
  const attributes = {
    text: { DataType: "String", StringValue: "grüße" },
    bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
  };
  const sent = await call("SendMessage", {
    QueueUrl,
    MessageBody: "one",
    MessageGroupId: "g",
    MessageAttributes: attributes,
  });
  const batch = await call("SendMessageBatch", {
    QueueUrl,
    Entries: ["two", "three"].map((body, n) => ({
      Id: `e${n}`,
      MessageBody: body,
      MessageGroupId: "g",
    })),
  });

  // Without an endpoint of its own the SDK goes to the origin of the queue's URL.
  const other = new sdk.SQSClient(options);
  const received = await other.send(
    new sdk.ReceiveMessageCommand({
      QueueUrl,
      MaxNumberOfMessages: 10,
      WaitTimeSeconds: 5,
      MessageAttributeNames: ["All"],
      MessageSystemAttributeNames: ["All"],
    }),
  );
  const [first] = received.Messages;
  const deleted = await call("DeleteMessageBatch", {
    QueueUrl,
    Entries: received.Messages.map((message, n) => ({
      Id: `d${n}`,
      ReceiptHandle: message.ReceiptHandle,
    })),
  });
  let missing = null;
  try {
    await call("GetQueueUrl", { QueueName: "not-there" });
  } catch (error) {
    missing = { isClass: error instanceof sdk.QueueDoesNotExist, code: error.Code ?? error.name };
  }
  const empty = await call("ReceiveMessage", { QueueUrl });
  const tags = await call("ListQueueTags", { QueueUrl });
  console.log(
    JSON.stringify({
      sameId: first.MessageId === sent.MessageId,
      bodies: received.Messages.map((message) => message.Body),
      bytes: Array.from(first.MessageAttributes.bytes.BinaryValue),
      text: first.MessageAttributes.text.StringValue,
      group: first.Attributes.MessageGroupId,
      batch: batch.Successful.length,
      deleted: deleted.Successful.length,
      empty: empty.Messages ?? null,
      missing,
      tags: tags.Tags,
    }),
  );
  client.destroy();
  other.destroy();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
