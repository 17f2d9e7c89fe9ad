/**
 * Streams that grow long.
 *
 * For each message JupyterLab compares all of a stream's text, letter by letter, with what it
 * becomes: 10 ms and more at a few MB. Text that only goes on, at the end of a long one, is appended
 * instead; the document is the same. All else, and a JupyterLab that is made otherwise, is left alone.
 */

import type { IOutput } from '@jupyterlab/nbformat';
import type { IOutputAreaModel } from '@jupyterlab/outputarea';

export const LONG = 20_000; // characters; shorter texts are compared, and drawn, quickly
const CURSOR = /[\b\r]/; // what moves it back into the text

interface IInside {
  add(output: IOutput): number;
  clearNext?: unknown;
  _lastStreamName?: unknown;
  _streamIndex?: unknown;
}

/** Returns how to undo it. */
export function appendQuickly(outputs: IOutputAreaModel): () => void {
  const inside = outputs as unknown as IInside;
  if (Object.hasOwn(inside, 'add')) {
    return () => undefined; // another view of the notebook has done it
  }
  const add = inside.add;
  inside.add = output =>
    isAppended(outputs, inside, output) ? outputs.length : add.call(inside, output);
  return () => {
    delete (inside as Partial<IInside>).add;
  };
}

function isAppended(outputs: IOutputAreaModel, inside: IInside, output: IOutput): boolean {
  const last = outputs.length > 0 ? outputs.get(outputs.length - 1) : undefined;
  const stream = last?.streamText;
  const text = output['text'];
  if (
    stream === undefined ||
    stream.text.length < LONG ||
    inside._streamIndex !== stream.text.length || // a carriage return has moved it
    inside._lastStreamName !== output['name'] ||
    inside.clearNext !== false ||
    output.output_type !== 'stream' ||
    typeof text !== 'string' ||
    CURSOR.test(text)
  ) {
    return false;
  }
  stream.insert(stream.text.length, text);
  inside._streamIndex = stream.text.length;
  return true;
}
